# frozen_string_literal: true

module Heddle
  # This gem's version; heddle-lab carries the same.
  VERSION = "0.1.0"
end
