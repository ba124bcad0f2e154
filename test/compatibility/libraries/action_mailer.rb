# frozen_string_literal: true

require_relative "../peers/smtp"

Compatibility.library "actionmailer", kind: "Mail" do
  peer Compatibility::Peers::SMTP
  load do
    require "action_mailer"
    ActionMailer::Base.logger = nil
    @mailer = Class.new(ActionMailer::Base) do
      default from: "me@heddle.example", to: "you@heddle.example"

      def hello(number, settings)
        mail(subject: "Hello", body: "heddle#{number}", content_type: "text/plain", delivery_method_options: settings)
      end
    end
  end
  connect { |peer| {address: peer.host, port: peer.port, enable_starttls_auto: false} }
  ask do |settings, number|
    @mailer.hello(number, settings).deliver_now.body.to_s[/\d+/].to_i # which says that it was taken
  end
end
