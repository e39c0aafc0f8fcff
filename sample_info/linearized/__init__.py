"""The linearised network's training, and every leave-one-out training."""
