"""The form of answers: what stands around a body, and the document that describes it all."""
