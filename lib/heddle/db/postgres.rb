# frozen_string_literal: true

require_relative "postgresql" # which registers itself by this name too
