"""Commands about ManifestWorks: arguments and printing, nothing else."""
