"""What a person starts beside the pipeline itself: assets and jobs of their own."""
