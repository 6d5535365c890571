"""What does XProf say of a run, and why is it not what traceview says?"""
