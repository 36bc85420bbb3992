"""Networks made of public layers only."""
