"""Controllers of KnativeServing and KnativeEventing."""
