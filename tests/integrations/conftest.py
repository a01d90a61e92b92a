"""What tests of all integrations need. Nothing here imports a framework."""
