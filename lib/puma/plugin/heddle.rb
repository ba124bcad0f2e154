# frozen_string_literal: true

require "heddle/puma"

Puma::Plugin.create do
  # Called when the configuration is complete, before the first thread and the first worker process.
  def start(launcher) = Heddle::PumaSupport::Settings.apply(launcher)
end
