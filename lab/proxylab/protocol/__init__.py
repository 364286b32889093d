"""What clients and a lab process say to each other."""
