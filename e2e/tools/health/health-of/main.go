// Command health-of prints what GitOps tools make of Kubernetes objects: kstatus (Flux, kpt) with its own library, Flux
// by the CEL expressions of a health check, and Argo CD by a health script, run by the interpreter that Argo CD uses.
//
//	health-of SCRIPT EXPRESSIONS < objects.json
//
// EXPRESSIONS is a JSON object with any of "inProgress", "failed" and "current". The input is a JSON list of objects; so
// is the output, of {"kstatus", "flux", "argocd", "message"}, in the same order.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type health struct {
	Kstatus string `json:"kstatus"`
	Flux    string `json:"flux"`
	ArgoCD  string `json:"argocd"`
	Message string `json:"message"`
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: health-of SCRIPT EXPRESSIONS < objects.json")
	}
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var expressions map[string]string
	if err := json.Unmarshal([]byte(os.Args[2]), &expressions); err != nil {
		log.Fatal(err)
	}
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		log.Fatal(err)
	}
	found := make([]health, 0, len(objects))
	for _, text := range objects {
		one, err := healthOf(text, string(script), expressions)
		if err != nil {
			log.Fatal(err)
		}
		found = append(found, one)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func healthOf(text []byte, script string, expressions map[string]string) (health, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return health{}, err
	}
	computed, err := status.Compute(object)
	if err != nil {
		return health{}, err
	}
	flux, err := evaluate(expressions, object)
	if err != nil {
		return health{}, err
	}
	argocd, message, err := run(script, object.Object)
	return health{Kstatus: string(computed.Status), Flux: string(flux), ArgoCD: argocd, Message: message}, err
}

// evaluate follows Flux's RFC 0009: an older observedGeneration is in progress, and so is an object for which no
// expression holds. Like Flux, it makes each top-level field of the object a variable.
func evaluate(expressions map[string]string, object *unstructured.Unstructured) (status.Status, error) {
	observed, found, err := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if err == nil && found && observed != object.GetGeneration() {
		return status.InProgressStatus, nil
	}
	for _, one := range []struct {
		name  string
		means status.Status
	}{{"inProgress", status.InProgressStatus}, {"failed", status.FailedStatus}, {"current", status.CurrentStatus}} {
		expression, found := expressions[one.name]
		if !found {
			continue
		}
		holds, err := holds(expression, object.Object)
		if err != nil {
			return "", fmt.Errorf("%s: %w", one.name, err)
		}
		if holds {
			return one.means, nil
		}
	}
	return status.InProgressStatus, nil
}

func holds(expression string, variables map[string]any) (bool, error) {
	environment, err := cel.NewEnv()
	if err != nil {
		return false, err
	}
	parsed, issues := environment.Parse(expression)
	if issues.Err() != nil {
		return false, issues.Err()
	}
	program, err := environment.Program(parsed)
	if err != nil {
		return false, err
	}
	result, _, err := program.Eval(variables)
	if err != nil {
		return false, err
	}
	answer, ok := result.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the expression is no condition")
	}
	return answer, nil
}

// run gives the script what Argo CD gives it: the object as `obj`, and hardly any library.
func run(script string, object map[string]any) (string, string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		call := lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return "", "", err
		}
	}
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	answer, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the script returned no table")
	}
	return answer.RawGetString("status").String(), answer.RawGetString("message").String(), nil
}

func value(state *lua.LState, from any) lua.LValue {
	switch from := from.(type) {
	case bool:
		return lua.LBool(from)
	case int64:
		return lua.LNumber(from)
	case float64:
		return lua.LNumber(from)
	case string:
		return lua.LString(from)
	case []any:
		table := state.NewTable()
		for _, item := range from {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for name, item := range from {
			table.RawSetString(name, value(state, item))
		}
		return table
	}
	return lua.LNil
}
