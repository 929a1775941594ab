"""What the create-topic policies said about one topic, as the command carries it to the machine.

Policies run code of the operator's own: slow, impure, able to raise. So they run before the machine does, in the shell,
and only their verdict enters it, as data on the command. A decision can then be repeated from the log years later
without the policy's class at hand, and the log says which rule let a topic through or held it back. The log keeps
verdicts as they are, so their one definition is in `events.catalog`.
"""

from events.catalog import Observation, Outcome, Verdict

__all__ = ["ALLOWED", "Observation", "Outcome", "Verdict"]

ALLOWED = Verdict("allowed")
"""The verdict where no policy is set, and where every policy agrees in silence."""
