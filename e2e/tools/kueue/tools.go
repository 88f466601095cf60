//go:build tools

// Package tools names the command built from this module, so that go.mod pins it.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
