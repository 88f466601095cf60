"""The request path: `pdinference router` sends each request to a P pod and then to a D pod."""
