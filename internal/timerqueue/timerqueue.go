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
	at    time.Time
	index int // in the queue, from 1; 0 if in none
}

// Due returns the due time.
func (s *Entry) Due() time.Time { return s.at }

func (s *Entry) slot() *Entry { return s }

// Item is an element of a Queue: a pointer to a struct that embeds Entry.
type Item interface{ slot() *Entry }

// Queue orders values by due time. The zero value is an empty queue.
type Queue[T Item] struct{ heap order[T] }

// Schedule sets the due time of a value, and adds the value to the queue if absent.
func (q *Queue[T]) Schedule(t T, at time.Time) {
	s := t.slot()
	s.at = at
	if s.index == 0 {
		heap.Push(&q.heap, t)
		return
	}
	heap.Fix(&q.heap, s.index-1)
}

// Remove removes a value from the queue if present.
func (q *Queue[T]) Remove(t T) {
	if s := t.slot(); s.index > 0 {
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
	if !ok || first.slot().at.After(now) {
		return next, false
	}
	return first, true
}

// UntilNext returns the time until a value is due, limited to most.
func (q *Queue[T]) UntilNext(now time.Time, most time.Duration) time.Duration {
	if first, ok := q.First(); ok {
		return min(max(first.slot().at.Sub(now), 0), most)
	}
	return most
}

// order implements heap.Interface.
type order[T Item] []T

func (o order[T]) Len() int           { return len(o) }
func (o order[T]) Less(i, j int) bool { return o[i].slot().at.Before(o[j].slot().at) }

func (o order[T]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].slot().index, o[j].slot().index = i+1, j+1
}

func (o *order[T]) Push(x any) {
	t := x.(T)
	*o = append(*o, t)
	t.slot().index = len(*o)
}

func (o *order[T]) Pop() any {
	old := *o
	t := old[len(old)-1]
	var none T
	old[len(old)-1] = none
	*o = old[:len(old)-1]
	t.slot().index = 0
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
