"""What is minimised: the dense and the factored objective, fidelity, initialisation, offsets."""
