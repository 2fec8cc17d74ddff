"""The figures and tables of docs/how, drawn from plans and kernels of today."""
