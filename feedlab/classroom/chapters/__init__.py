"""What the notebooks run, one module a topic: functions that take an open Book or Lab and plain parameters, do something to live
engines in that namespace, and return plain data; beside each the figure that shows it.
"""
