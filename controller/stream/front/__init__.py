"""A front: puts commands, follows events, answers clients."""
