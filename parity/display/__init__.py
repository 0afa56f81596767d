"""What a result holds beside the verdict, so that reports can draw a run: curves, gaps, gradients, layouts, logs."""
