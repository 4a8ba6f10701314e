package clusterdump

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/supportbundle"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
)

const (
	// MaxLog is the maximum size of a log in bytes. Older lines are dropped.
	MaxLog            = 20 << 20
	logTimeout        = time.Minute // timeout for one log
	maxConcurrentLogs = 2           // per cluster, because each may use MaxLog of memory
)

// gatherLogs reads the logs of the agents' pods, including pods that do not run, and the previous
// logs of restarted containers.
func gatherLogs(ctx context.Context, c *kubeclient.Client, since time.Duration, put Sink) {
	list, err := c.List(ctx, kubeclient.PodKind(), render.Namespace, "")
	if err != nil {
		put("logs", nil, err)
		return
	}
	var group errgroup.Group
	group.SetLimit(maxConcurrentLogs)
	for i := range list {
		// Skip the pod of the web page: its log contains a token, and it is no agent.
		if !strings.HasPrefix(list[i].GetLabels()["app.kubernetes.io/name"], "hawser-") || kubeclient.IsUIPod(&list[i]) {
			continue
		}
		name := list[i].GetName()
		group.Go(func() error {
			text, err := log(ctx, c, name, since, false)
			put("logs/"+name+".log", text, err)
			return nil
		})
		if restarted(&list[i]) {
			group.Go(func() error {
				text, err := log(ctx, c, name, 0, true)
				put("logs/"+name+".previous.log", text, err)
				return nil
			})
		}
	}
	_ = group.Wait() // every function returns nil
}

// restarted reports whether the agent's container was restarted.
func restarted(pod *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	for _, item := range list {
		s, _ := item.(map[string]any)
		if n, _ := s["restartCount"].(int64); s["name"] == kubeclient.AgentContainer && n > 0 {
			return true
		}
	}
	return false
}

// log reads the log of an agent's container. The first line of a truncated log says so.
func log(ctx context.Context, c *kubeclient.Client, pod string, since time.Duration, previous bool) ([]byte, error) {
	request, err := c.Request(logTimeout)
	if err != nil {
		return nil, err
	}
	request = request.AbsPath("/api/v1/namespaces", render.Namespace, "pods", pod, "log").Param("container", kubeclient.AgentContainer)
	if previous {
		request = request.Param("previous", "true")
	}
	if since > 0 {
		request = request.Param("sinceSeconds", strconv.Itoa(max(1, int(since/time.Second))))
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return NewestLog(supportbundle.Tail(body, MaxLog))
}

// NewestLog adds a first line to a truncated log with the number of omitted bytes.
func NewestLog(text []byte, omitted int64, err error) ([]byte, error) {
	if omitted > 0 {
		text = append(fmt.Appendf(nil, "(hawser gather: %d bytes before this were left out)\n", omitted), text...)
	}
	return text, err
}
