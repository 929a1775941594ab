"""A gateway: puts commands, follows events, answers clients."""
