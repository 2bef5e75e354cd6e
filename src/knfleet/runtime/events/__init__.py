"""Events: which are written for what happened, and the recorder that writes them."""
