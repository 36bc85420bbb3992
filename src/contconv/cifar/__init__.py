"""CIFAR-10: the data, the paper's training and its measurements (extra `[train]`)."""
