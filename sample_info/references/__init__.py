"""What scores are compared with: the network itself, trained again or differentiated."""
