package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
)

func TestPrintRecent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 10, 0, time.UTC)
	var out bytes.Buffer
	err := printRecent(&out, status.Recent{
		Samples: []status.Sample{
			{At: at},
			{At: at.Add(10 * time.Second), Ready: true, Links: 2, Up: 1, RTTMicros: 1250, Loss: 0.1, RxRate: 5, TxRate: 6, Connections: 7, Drift: 1},
			{At: at.Add(time.Minute)},
		},
		Kinds:   []status.Kind{{Name: "route", State: "done"}, {Name: "peer", State: "waits", Why: "peer b: no device"}},
		Changes: []status.Note{{At: at, Text: "+ route 7300/242.0.0.0"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `TIME      READY  LINKS  RTT(MS)  LOSS  RX(B/S)     TX(B/S)     CONNECTIONS  DRIFT
03:04:20  yes    1/2    1.2      10%   5           6           7            1
03:05:10  no     0/0    0.0      0%    0           0           0            0
peer: waits: peer b: no device
03:04:10  + route 7300/242.0.0.0
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
}
