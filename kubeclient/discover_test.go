package kubeclient_test

import (
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/kubeclient/fakeapi"
	"hawser.dev/hawser/schema"
)

// TestClockSkew: preflight reports an API server whose clock is not this machine's, and in
// which direction.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	for skew, want := range map[time.Duration]string{
		0: "", time.Minute: "the clock of the API server is 1m0s ahead of this machine's", -time.Hour: "the clock of the API server is 1h0m0s behind this machine's",
	} {
		api, c := fakeapi.New(t, "g1")
		api.ClockSkew = skew
		list, err := c.Preflight(t.Context(), discover.Expected{Cluster: &schema.Cluster{Name: "g1"}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range list {
			if d.Code == "clock-skew" {
				got = d.Summary
			}
		}
		// The header has whole seconds.
		if got = strings.NewReplacer("59m59s", "1h0m0s", " 59s", " 1m0s", "1m1s", "1m0s", "1h0m1s", "1h0m0s").Replace(got); got != want {
			t.Errorf("%s ahead: %q, want %q", skew, got, want)
		}
	}
}
