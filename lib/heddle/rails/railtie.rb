# frozen_string_literal: true

module Heddle
  module Rails
    # Settings, with their defaults:
    #
    # - <tt>config.heddle.net_http = false</tt>: whether Net::HTTP is accelerated, see {NetHTTP}
    # - <tt>config.heddle.keep_alive = nil</tt>: the options of {NetHTTP.keep_alive} as a Hash, such as
    #   <tt>{idle: 30}</tt>, or true
    # - <tt>config.heddle.timeout = false</tt>: whether Timeout.timeout goes without a thread, see {TimeoutSupport}
    # - <tt>config.heddle.deadline = nil</tt>: seconds that a request may take, see {Rack::Deadline}
    # - <tt>config.heddle.deadline_headers = false</tt>: whether deadlines travel, inwards and outwards, see
    #   {Rack::Deadline} and {DeadlineHeader}
    # - <tt>config.heddle.fibers = nil</tt>: tasks that use the database at once in a process, for the checks
    # - <tt>config.heddle.checks = true</tt>: whether the boot prints what keeps tasks from running at the same time
    #
    # The isolation level is :fiber, unless the application sets another one, so that each task has a database
    # connection of its own.
    class Railtie < ::Rails::Railtie
      config.heddle = ActiveSupport::OrderedOptions.new
      config.heddle.checks = true

      rake_tasks { load File.expand_path("tasks.rake", __dir__) }

      initializer "heddle.isolation_level", before: "active_support.isolation_level" do |app|
        app.config.active_support.isolation_level ||= :fiber
      end

      initializer "heddle.settings", after: :load_config_initializers do |app|
        settings = app.config.heddle
        require_relative "../net_http" if settings.net_http || settings.keep_alive
        require_relative "../timeout" if settings.timeout
        require_relative "../deadline_header" if settings.deadline_headers
        if (kept = settings.keep_alive)
          NetHTTP.keep_alive(**(kept.is_a?(Hash) ? kept : {}))
        end
        if settings.deadline
          require_relative "../rack/deadline"
          app.middleware.insert_after ActionDispatch::RequestId, Rack::Deadline, settings.deadline,
            headers: settings.deadline_headers
        end
      end

      initializer "heddle.live" do
        ActiveSupport.on_load(:action_controller) do
          require_relative "live"
          Live.install
        end
      end

      # Rails sets the isolation level after the initialization, too: later than that.
      initializer "heddle.checks", after: "active_support.isolation_level" do |app|
        config.after_initialize do
          Checks.new(app).lines.each { |line| warn "heddle: #{line}" } if app.config.heddle.checks
        end
      end
    end
  end
end
