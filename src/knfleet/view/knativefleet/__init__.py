"""KnativeFleets as users see them: rollouts, revisions, and what a change would do."""
