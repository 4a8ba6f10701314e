// Package timerqueue provides a priority queue of values by due time. A loop then handles only the
// values that are due.
package timerqueue

import (
	"container/heap"
	"time"
)

// Entry is the due time of a value, and its position in a Queue. The zero value is due at
// once and in no queue. Queued values embed it.
type Entry struct {
	due   time.Time
	index int // in the queue, from 1; 0 if in none
}

// Due returns the due time.
func (s *Entry) Due() time.Time { return s.due }

func (s *Entry) entry() *Entry { return s }

// Item is an element of a Queue: a pointer to a struct that embeds Entry.
type Item interface{ entry() *Entry }

// Queue orders values by due time. The zero value is an empty queue.
type Queue[T Item] struct{ heap itemHeap[T] }

// Schedule sets the due time of a value, and adds the value to the queue if absent.
func (q *Queue[T]) Schedule(t T, at time.Time) {
	s := t.entry()
	s.due = at
	if s.index == 0 {
		heap.Push(&q.heap, t)
		return
	}
	heap.Fix(&q.heap, s.index-1)
}

// Remove removes a value from the queue if present.
func (q *Queue[T]) Remove(t T) {
	if s := t.entry(); s.index > 0 {
		heap.Remove(&q.heap, s.index-1)
	}
}

// First returns the value that is due first; false if the queue is empty.
func (q *Queue[T]) First() (first T, ok bool) {
	if len(q.heap) == 0 {
		return first, false
	}
	return q.heap[0], true
}

// Next returns the value that is due first, if it is due at now.
func (q *Queue[T]) Next(now time.Time) (next T, ok bool) {
	first, ok := q.First()
	if !ok || first.entry().due.After(now) {
		return next, false
	}
	return first, true
}

// UntilNext returns the time until a value is due, up to limit.
func (q *Queue[T]) UntilNext(now time.Time, limit time.Duration) time.Duration {
	if first, ok := q.First(); ok {
		return min(max(first.entry().due.Sub(now), 0), limit)
	}
	return limit
}

// itemHeap implements heap.Interface.
type itemHeap[T Item] []T

func (o itemHeap[T]) Len() int           { return len(o) }
func (o itemHeap[T]) Less(i, j int) bool { return o[i].entry().due.Before(o[j].entry().due) }

func (o itemHeap[T]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].entry().index, o[j].entry().index = i+1, j+1
}

func (o *itemHeap[T]) Push(x any) {
	t := x.(T)
	*o = append(*o, t)
	t.entry().index = len(*o)
}

func (o *itemHeap[T]) Pop() any {
	old := *o
	t := old[len(old)-1]
	var zero T
	old[len(old)-1] = zero
	*o = old[:len(old)-1]
	t.entry().index = 0
	return t
}

// Earlier returns the earlier one of two times.
func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Later returns the later one of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
