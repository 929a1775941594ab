"""Topics as code: `topicwright plan`, `apply`, `import` and `drift`."""
