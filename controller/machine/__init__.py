"""Pure: decide(state, command) gives events and answers, apply(state, event) the next state."""
