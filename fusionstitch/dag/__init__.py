"""`fs.dag`: schedules GPU work at run time, by the arrays that it reads and writes."""

from fusionstitch.dag.array import Array as Array
from fusionstitch.dag.errors import ArrayError as ArrayError
from fusionstitch.dag.errors import KernelError as KernelError
from fusionstitch.dag.errors import LaunchError as LaunchError
from fusionstitch.dag.errors import SignatureError as SignatureError
from fusionstitch.dag.graph import Graph as Graph
from fusionstitch.dag.kernel import UserKernel as UserKernel
from fusionstitch.dag.scheduler import Scheduler as Scheduler
from fusionstitch.dag.timeline import Overlap as Overlap
from fusionstitch.dag.timeline import Span as Span
from fusionstitch.dag.timeline import Timeline as Timeline
