package health

import "container/heap"

// schedule is a heap of targets by the time of what is next.
type schedule struct{ queue queue }

func (s *schedule) push(t *target) { heap.Push(&s.queue, t) }

func (s *schedule) remove(t *target) {
	if t.index >= 0 {
		heap.Remove(&s.queue, t.index)
	}
}

// moved puts the target right after its time changed.
func (s *schedule) moved(t *target) {
	if t.index >= 0 {
		heap.Fix(&s.queue, t.index)
	}
}

// first gives the target whose time comes first; nil when there is none.
func (s *schedule) first() *target {
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0]
}

// queue implements heap.Interface.
type queue []*target

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].wake.Before(q[j].wake) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	t := x.(*target)
	t.index = len(*q)
	*q = append(*q, t)
}

func (q *queue) Pop() any {
	old := *q
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	t.index = -1
	return t
}
