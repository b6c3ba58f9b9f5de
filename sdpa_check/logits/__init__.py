"""From dot products to logits: scaling rules and transforms."""
