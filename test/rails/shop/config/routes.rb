# frozen_string_literal: true

Rails.application.routes.draw do
  get "orders/:number", to: "orders#show"
  get "waiting/:number", to: "orders#show", waiting: true
  root to: "orders#pool"
end
