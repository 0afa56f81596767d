"""Does a comparison see what it is for? Known faults in the embedded trainer, and correct layouts beside them."""
