"""How the agent registers its cluster and keeps its credential."""
