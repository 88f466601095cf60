"""Runs functions on hostile input in a process that the kernel ends when they take too much time or memory.

One child process imports the functions once and forks a worker for each lane (`worker.py`). A lane is a socket to the
operator (`process.py`). Its calls are made one at a time, fairly between namespaces (`fair_queue.py`). A kernel timer
limits the time and RLIMIT_AS the memory of a worker. The child process replaces a worker that ended.
"""
