"""What ships: placements and their rivals run end to end, and what that teaches about costs."""
