package listwatch

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// refusedWatch is a Watch whose watches fail.
type refusedWatch struct {
	cache.ReflectorStore
	err      error
	reported []error
}

func (w *refusedWatch) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return nil, nil
}

func (w *refusedWatch) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, w.err
}

func (w *refusedWatch) RequestDone(err error) { w.reported = append(w.reported, err) }

// TestRefusedStreamingList tests that the refusal of a streaming list is not reported: the reflector
// lists instead.
func TestRefusedStreamingList(t *testing.T) {
	t.Parallel()
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	streaming, plain := metav1.ListOptions{SendInitialEvents: new(bool)}, metav1.ListOptions{}
	tests := []struct {
		name    string
		err     error
		options metav1.ListOptions
		want    int
	}{
		{"a server without streaming lists", invalid, streaming, 0},
		{"another error of a streaming list", errors.New("no route to host"), streaming, 1},
		{"a refused watch", invalid, plain, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &refusedWatch{err: tt.err}
			_, err := cache.ToListerWatcherWithContext(requests(w)).WatchWithContext(t.Context(), tt.options)
			if err == nil || len(w.reported) != tt.want {
				t.Errorf("error %v, reported %v, want %d", err, w.reported, tt.want)
			}
		})
	}
}
