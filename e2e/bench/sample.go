package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// quantile gives the value below which the share q of the sample lies.
func quantile[T cmp.Ordered](sample []T, q float64) T {
	sorted := slices.Sorted(slices.Values(sample))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median[T cmp.Ordered](sample []T) T { return quantile(sample, 0.5) }

// millis writes a duration with three digits that count.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f µs", ms*1000)
}

// side is one of several things that are measured in turn.
type side struct {
	name  string
	once  func() (time.Duration, error)
	times []time.Duration
}

// inTurn measures all sides once a round, beginning with another one each
// round, so that what else the machine does hits all alike. The first round
// only warms up.
func inTurn(rounds int, sides []*side) error {
	for round := range rounds + 1 {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			took, err := s.once()
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 {
				s.times = append(s.times, took)
			}
		}
	}
	return nil
}
