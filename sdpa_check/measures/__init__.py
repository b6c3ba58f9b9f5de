"""What is measured in a block: each module turns draws into named sums, and nothing else."""
