package main

import "testing"

func TestProcessors(t *testing.T) {
	t.Parallel()
	before, err := readProcessors("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1 2 3\n")
	if err != nil || before != (processors{20, 100}) {
		t.Fatalf("%+v, %v", before, err)
	}
	now, err := readProcessors("cpu  40 5 20 100 20 5 5 5 5 0\n")
	if err != nil || now.share(before) != 60 {
		t.Errorf("%+v, %v: %d %% in use", now, err, now.share(before))
	}
	if now.share(now) != 0 {
		t.Error("share is not 0 without elapsed time")
	}
	for _, text := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		if p, err := readProcessors(text); err == nil {
			t.Errorf("%q was parsed as %+v", text, p)
		}
	}
}
