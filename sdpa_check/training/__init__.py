"""One attention layer trained from scratch: task, gradients, optimisers, trials and their store."""
