// KEDA's controller of ScaledObjects and its scale loop, in one process without leader election, and what its metrics
// server answers as plain HTTP: that server is a program of its own, which adds TLS and authorisation to the same call.
//
//	keda KUBECONFIG NAMESPACE ADDRESS
//
// GET /NAMESPACE/SCALEDOBJECT/METRIC answers an ExternalMetricValueList.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
	"time"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	controllers "github.com/kedacore/keda/v2/controllers/keda"
	"github.com/kedacore/keda/v2/pkg/eventemitter"
	"github.com/kedacore/keda/v2/pkg/k8s"
	"github.com/kedacore/keda/v2/pkg/metricscollector"
	"github.com/kedacore/keda/v2/pkg/scalers/authentication"
	"github.com/kedacore/keda/v2/pkg/scaling"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const patience = 3 * time.Second

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func run(kubeconfig, namespace, address string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, keda.AddToScheme} {
		if err := add(types); err != nil {
			return err
		}
	}
	metricscollector.NewMetricsCollectors(metricscollector.Options{})
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  types,
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	if err != nil {
		return err
	}
	handler, err := reconcile(manager)
	if err != nil {
		return err
	}
	go func() { log.Fatal(http.ListenAndServe(address, metrics(handler))) }()
	return manager.Start(ctrl.SetupSignalHandler())
}

func reconcile(manager ctrl.Manager) (scaling.ScaleHandler, error) {
	client, err := kubernetes.NewForConfig(manager.GetConfig())
	if err != nil {
		return nil, err
	}
	scales, _, err := k8s.InitScaleClient(manager)
	if err != nil {
		return nil, err
	}
	secrets := informers.NewSharedInformerFactory(client, time.Hour).Core().V1().Secrets().Lister()
	access := &authentication.AuthClientSet{CoreV1Interface: client.CoreV1(), SecretLister: secrets}
	recorder := manager.GetEventRecorder("keda-operator")
	handler := scaling.NewScaleHandler(
		manager.GetClient(), scales, manager.GetScheme(), patience, patience, recorder, access,
	)
	return handler, (&controllers.ScaledObjectReconciler{
		Client:       manager.GetClient(),
		Scheme:       manager.GetScheme(),
		ScaleClient:  scales,
		ScaleHandler: handler,
		EventEmitter: eventemitter.NewEventEmitter(manager.GetClient(), recorder, "test", access),
	}).SetupWithManager(manager, controller.Options{MaxConcurrentReconciles: 1})
}

func metrics(handler scaling.ScaleHandler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{namespace}/{name}/{metric}", func(answer http.ResponseWriter, ask *http.Request) {
		values, err := handler.GetScaledObjectMetrics(
			ask.Context(), ask.PathValue("name"), ask.PathValue("namespace"), ask.PathValue("metric"),
		)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		if err := json.NewEncoder(answer).Encode(values.Items); err != nil {
			log.Print(err)
		}
	})
	return mux
}
