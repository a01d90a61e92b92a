"""Workers for other libraries; each runs in a virtual environment of its own."""
