"""CIFAR-10: the data, training, and what the paper measures on the trained networks."""
