"""What commands do with installations that takes several steps: verify and move."""
