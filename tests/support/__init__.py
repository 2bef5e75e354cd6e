"""What several test folders use; no test folder imports another."""
