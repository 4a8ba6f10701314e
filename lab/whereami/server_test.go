package whereami

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStream: a silent client gets line after line, each a whole answer.
func TestStream(t *testing.T) {
	t.Parallel()
	s := &Server{id: Identity{Pod: "p", Namespace: "n", Node: "w", Cluster: "c", PodIP: "10.0.0.1"}}
	web := httptest.NewServer(s.handler())
	defer web.Close()
	resp, err := http.Get(web.URL + "/stream?interval=1ms")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for range 5 {
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		var got Answer
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Answer{Identity: s.id, Client: "127.0.0.1"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestAnswerNamesTheClient(t *testing.T) {
	t.Parallel()
	tests := []struct{ remote, want string }{
		{"10.0.0.9:4711", "10.0.0.9"}, {"[::ffff:10.0.0.9]:4711", "10.0.0.9"}, {"[fd00::1]:1", "fd00::1"}, {"[fe80::1%eth0]:1", "fe80::1"},
	}
	for _, tt := range tests {
		var got Answer
		if err := json.Unmarshal((&Server{}).answer(tt.remote), &got); err != nil || got.Client != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.remote, got.Client, err, tt.want)
		}
	}
}
