package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// TestTransformRetainsConditions: facts need all conditions of an endpoint, because terminating
// endpoints serve if no other endpoint is ready.
func TestTransformRetainsConditions(t *testing.T) {
	t.Parallel()
	want := discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.7.0.9"}, Conditions: want}}}
	have := transform(transform(slice)).(*discoveryv1.EndpointSlice).Endpoints[0].Conditions
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}
